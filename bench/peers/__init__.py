"""What others do, written down straightforwardly, for benches to stand beside."""
