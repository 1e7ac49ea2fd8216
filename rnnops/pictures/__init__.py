"""Pictures of nets: layered drawings as SVG, which say what `print(net)` says."""
