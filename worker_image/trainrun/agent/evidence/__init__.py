"""Evidence of hangs: what the agent gathers about hanging ranks before they are killed."""
