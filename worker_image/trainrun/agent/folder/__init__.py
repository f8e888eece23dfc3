"""A script's own folder as checkpoint: what is complete in it is stored, and put back."""
