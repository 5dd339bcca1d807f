"""Plotly figures of a variant table: nothing here computes a statistic.

Every figure takes the VariantTable that the page prints, so a bar and its printed number cannot disagree. A
variant keeps its colour and its marker in all of them. A figure with nothing to show is `Absent(reason)`.
"""
