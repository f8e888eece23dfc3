"""Mutation testing of the code that decides what is counted and what is resumed.

Why not a library: mutmut 3 mutates functions only, and what is said of causes and budgets stands in
tables of modules; and where the package is installed editable, it tests the original. cosmic-ray
starts pytest anew for each mutant, mutates annotations, and knows nothing of coverage.
"""
