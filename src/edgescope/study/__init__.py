"""Make Trials from flags or a study file; every mistake is reported with its line."""
