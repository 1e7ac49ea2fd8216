"""Nets: blobs, ops and their schemas, loop forms, inference of types, names, nets as text and back."""

from rnnops.net.net import Net as Net, common_net as common_net
