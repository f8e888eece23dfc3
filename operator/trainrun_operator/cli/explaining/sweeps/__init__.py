"""The life of a search, told from its log and, where trials had trouble, from their own stories."""
