"""The host's side of a board that is reached over ssh; the board needs only python3, and trtexec or PyTorch."""
