"""The pages in docs/reference, made from docstrings, models, help texts and comments.

`make reference` writes them; tests/docs/test_reference.py fails when one of them is stale. Nothing
here is text of its own: what a page says wrongly is corrected where the thing is defined.
"""
