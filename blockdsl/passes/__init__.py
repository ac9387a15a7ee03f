"""Graph passes: functions from a model to a model."""
