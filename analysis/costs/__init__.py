"""What training on an atlas costs: hours, dollars, and what binds.

model: a scenario and its bill. prices: the dated prices. measured: the rates of a results folder. table, figure:
dollars an epoch by loader. examples: a published calculation, from its inputs.
"""
