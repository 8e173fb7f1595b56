"""Reference implementations that benchmarks compare with."""
