"""What commands do to a running embedded cluster over its sockets: load, faults, measurements."""
