"""Where frames come from: files, cameras, streams, a made-up picture."""
