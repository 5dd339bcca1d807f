"""Five renderers of one Document: terminal, html, markdown, csv, json."""
