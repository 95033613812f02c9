//! Mounts without root: a user and mount namespace of our own.

use std::env;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::exit;
use crate::failure::Failure;
use crate::privilege;

/// The variable that marks a process in the namespace. Without it, a process that may not mount
/// there either would enter again for ever.
const ENTERED: &str = "BERTH_DEV_NAMESPACE";

/// A namespace must be entered before threads start, which would need unsafe code here; util-linux
/// does it. Propagation is shared, so that an agent's unmount reaches the namespaces of `berth
/// run`.
const ENTER: [&str; 6] = ["--user", "--map-root-user", "--mount", "--propagation", "shared", "--"];

/// Whether this process runs in a namespace made by [`enter_unless_root`].
pub fn is_entered() -> bool {
    env::var_os(ENTERED).is_some()
}

/// Ensures that this process may mount: otherwise replaces it by itself in its own namespaces.
/// Returns only when it may mount, or on a failure.
pub fn enter_unless_root() -> Result<(), Failure> {
    if privilege::may_mount() {
        return Ok(());
    }
    if is_entered() {
        return Err(refused("even in a namespace of its own it may not mount"));
    }
    // Tried first with a program that does nothing, to distinguish a refusal from our own failure.
    let tried = Command::new("unshare").args(ENTER).arg("true").stdin(Stdio::null()).output();
    match tried {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::local(
                "unshare was not found, and mounting needs it, or root",
                "install util-linux, or run `berth dev` as root",
            ));
        }
        Err(error) => return Err(refused(&error.to_string())),
        Ok(output) if !output.status.success() => {
            return Err(refused(String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(_) => {}
    }
    let own = env::current_exe().map_err(|error| refused(&error.to_string()))?;
    let error = Command::new("unshare")
        .args(ENTER)
        .arg(own)
        .args(env::args_os().skip(1))
        .env(ENTERED, "1")
        .exec();
    Err(refused(&error.to_string()))
}

/// The command that joins the namespaces of this process.
pub fn how_to_join() -> String {
    let pid = std::process::id();
    format!("nsenter --target {pid} --user --preserve-credentials --mount --wd=\"$PWD\" --")
}

fn refused(why: &str) -> Failure {
    Failure::Local {
        exit: exit::FAILED,
        message: format!("mounting needs root or a user namespace, which was refused: {why}"),
        next: "one of these:\n\
               run `berth dev` as root\n\
               allow user namespaces: sysctl -w kernel.unprivileged_userns_clone=1\n\
               on Ubuntu 24.04 and later:\n\
               sysctl -w kernel.apparmor_restrict_unprivileged_userns=0\n\
               in a container: give it CAP_SYS_ADMIN (docker run --privileged)"
            .to_owned(),
    }
}
