//! Finds what nobody else saw: claims of dead allocs, empty plugins, old records.
