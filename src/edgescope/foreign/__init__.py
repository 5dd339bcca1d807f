"""What files of other people have in common: layouts of folders, text, names of classes.

folders    what of a folder is data: hidden files, splits, class folders; one rule for all who read folders
classes    names of classes and their numbers: numbers as text, classes.txt
trtexec    names of columns that changed with its versions
text       text in any encoding that programs write, and whole numbers in it
"""
