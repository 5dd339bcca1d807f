"""Measures of right answers, one a file, in numpy alone: `--save` puts the file beside run.py.

    top_k      share of inputs whose label is among the k best classes
    mean_iou   overlap of class maps, the mean over classes
    mean_ap    COCO's mean average precision of boxes
    boxes      how well a variant's boxes agree with those of fp32, where no label tells the right ones
    own        a function of the user's

A measure first keeps of every input what its value is made of (`tally`), so that outputs of a million numbers need not
be held, and then says the value over any set of inputs, as often as an interval needs.
"""
