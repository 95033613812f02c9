//! Folds plugin instances and nodes into what can run where.
