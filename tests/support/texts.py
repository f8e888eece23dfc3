"""Texts of any code points, lone surrogates and control characters among them."""

from __future__ import annotations

from hypothesis import strategies as st

ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.text(
        st.sampled_from("\x00\x1b[31m\r\n\t\u202e\u2066\ud800\udfff\uffff損\U0010ffff{}\\\"'%")
    ),
    st.sampled_from(["損" * 5000, "\udc80" * 3000, "\x1b[" * 3000, "\ufeff", "a" * 100_000]),
)
