//! Registers volumes, grants claims, records every transition.
