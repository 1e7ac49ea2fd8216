"""From a net to a plan, and its calls: forward, backward, in parts, layer by layer, recorded, exported."""
