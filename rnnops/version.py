"""The version of rnnops: what `rnnops --version`, wheels and CHANGELOG.md say."""

VERSION = "0.1.0"
"""The version, `major.minor.patch`; also `rnnops.__version__`.

Example:
    >>> ro.VERSION.count(".")
    2
"""
