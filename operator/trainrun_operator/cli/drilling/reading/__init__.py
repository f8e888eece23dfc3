"""The content of checkpoint files, read without running anything of them."""
