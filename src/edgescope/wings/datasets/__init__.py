"""Data sets as others keep them: COCO, CSV files, Hugging Face, folders of .npy files."""
