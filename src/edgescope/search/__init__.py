"""What searches share: candidates, the loop that runs a strategy's steps, guesses of what was not measured.

The strategies are in the wings optimize, recommend and capacity.
"""
