"""The host's side of a board that is reached over ssh: nothing but python3 and trtexec is needed there."""
