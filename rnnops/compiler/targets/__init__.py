"""What kernel IR runs on: each target renders it and calls what comes out."""
