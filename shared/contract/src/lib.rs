//! Subjects, buckets, keys, records, messages and error codes: the wire, defined once.
