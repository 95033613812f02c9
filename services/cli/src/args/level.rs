//! `berth level …`.

use clap::Subcommand;

/// `berth level …`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum LevelCommand {
    /// Hold the level: nothing is written that the last version cannot read
    ///
    /// Do this before an upgrade that may be taken back. What needs a higher level is refused
    /// meanwhile, such as creating or expanding volumes after an upgrade from a version that could
    /// not. A level that has risen stays.
    #[command(after_long_help = "EXAMPLES
    berth level hold")]
    Hold,
    /// Let the level rise again, once every replica reads what may be written then
    ///
    /// From then on the last version cannot read everything any more, so do this when nobody wants
    /// to go back.
    #[command(after_long_help = "EXAMPLES
    berth level release")]
    Release,
}
