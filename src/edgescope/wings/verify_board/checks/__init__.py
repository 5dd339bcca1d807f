"""The checks of the kit: functions of a site, each named by a row of checks.toml."""
