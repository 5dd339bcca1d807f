"""A stream is watched for days: its alarms are logged, posted and kept as clips, and drawn on a terminal."""
