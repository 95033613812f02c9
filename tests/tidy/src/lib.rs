//! Holds the layout: who may depend on whom, file lengths, forbidden words.
