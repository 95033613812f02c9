//! `berth keygen`: the key that volumes' secrets are sealed for.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use berth_service::seal;

use crate::args::Keygen;
use crate::failure::Failure;
use crate::output::{data, print_note};

/// Writes a new seed to a file that only its owner can read, and prints the public key.
pub fn keygen(args: &Keygen) -> Result<(), Failure> {
    let file = &args.file;
    let (seed, public) = seal::new_seed()
        .map_err(|error| Failure::local(error, "try again; if it stays so, report it"))?;
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    created.and_then(|mut created| writeln!(created, "{seed}")).map_err(|error| {
        let next = match error.kind() {
            ErrorKind::AlreadyExists => "name another file: a key in use must not be lost",
            _ => "name a file in a directory that you may write",
        };
        Failure::local(format!("{} cannot be written: {error}", file.display()), next)
    })?;
    print_note(format_args!(
        "wrote {}; name it in `secrets.key_file` of every berth-claim",
        file.display()
    ));
    data(&public);
    Ok(())
}
