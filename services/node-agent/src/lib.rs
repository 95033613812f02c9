//! Fingerprints plugins, stages and publishes on its node, answers for the controllers it hosts.
