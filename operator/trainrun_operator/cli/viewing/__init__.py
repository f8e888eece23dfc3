"""`trainrun page`: many runs, live and past, on one page that a browser follows."""
