"""The version of rnnops: what `rnnops --version`, wheels and CHANGELOG.md say."""

VERSION = "0.1.0"
