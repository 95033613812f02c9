//! Pure decisions: ids, access rules, the volume's transitions, retry policy, limits.
