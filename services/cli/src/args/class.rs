//! `berth class …`

use std::path::PathBuf;

use berth_domain::ClassId;
use clap::{Args, Subcommand};

use super::list::LISTS;

/// `berth class …`
#[derive(Debug, Subcommand)]
pub enum ClassCommand {
    /// Write an example of a class's document, for editing
    ///
    /// It has every field, explained by a comment. With --json the example is JSON, which has no
    /// comments. A file that exists is not overwritten.
    #[command(after_long_help = "EXAMPLES
    berth class init
    berth class init fast.toml && $EDITOR fast.toml && berth class create fast.toml
    berth class init --json -")]
    Init(ClassInit),
    /// Define a class of volumes, or change it
    ///
    /// The document is TOML or JSON; `berth class init` writes an example. It is checked before
    /// anything is sent. A changed class changes no volume: volumes that were made from it stay as
    /// they are. Secrets are sealed before they leave this machine. A document without secrets
    /// leaves those that the class has.
    #[command(after_long_help = "EXAMPLES
    berth class create fast.toml
    generate-class | berth class create -")]
    Create(ClassCreate),
    /// List the classes that the namespace may use
    ///
    /// USED is what the namespace has of the class, and QUOTA what it may have.
    #[command(visible_alias = LISTS[1], after_long_help = "EXAMPLES
    berth class list
    berth class list --namespace team-a")]
    List(ClassList),
    /// Show one class
    ///
    /// Shows all that its document says, except for secrets and mount flags, and what the namespace
    /// has of it.
    #[command(after_long_help = "EXAMPLES
    berth class status fast
    berth class status fast --json | jq .used")]
    Status(ClassShow),
    /// Remove a class of which no volume is left
    ///
    /// Refused while a volume of any namespace was made from it. Nothing changes at the storage.
    #[command(after_long_help = "EXAMPLES
    berth class delete fast")]
    Delete(ClassDelete),
}

/// `berth class init`
#[derive(Debug, Args)]
pub struct ClassInit {
    /// The file to write, or - for stdout [default: class.toml; class.json with --json]
    pub file: Option<PathBuf>,
}

/// `berth class create`
#[derive(Debug, Args)]
pub struct ClassCreate {
    /// The class's document, or - for stdin
    pub file: PathBuf,
}

/// `berth class list`
#[derive(Debug, Args)]
pub struct ClassList {
    /// Sort the table by this column, named by its heading [default: the first, the name]
    #[arg(long, value_name = "COLUMN", conflicts_with = "json")]
    pub sort: Option<String>,
}

/// `berth class status`
#[derive(Debug, Args)]
pub struct ClassShow {
    /// The class
    #[arg(value_name = "CLASS")]
    pub id: ClassId,
}

/// `berth class delete`
#[derive(Debug, Args)]
pub struct ClassDelete {
    /// The class
    #[arg(value_name = "CLASS")]
    pub id: ClassId,
}
