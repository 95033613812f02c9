//! `berth access`: the identities of a fleet, made on this machine.
//!
//! **Promises** that each answer names the files and the next step, and that all faults of an input
//! are reported together, before anything is written.
//!
//! **Never** prints a seed.

use std::path::Path;

use berth_access::directory::{FilePlace, IssuedIdentity, NewIdentity, WhichKeys};
use berth_access::host::Host;
use berth_access::install::{self, ServerAccounts};
use berth_access::record::{IdentityRecord, KeyState};
use berth_access::{AccessError, Directory, Grants, Role};
use berth_contract::role::{GRANT_FORM, SERVICES};
use berth_domain::Timestamp;
use berth_service::clock;

use crate::args::{
    Access, AccessCommand, AccessInit, AccessUser, Adopt, Certify, Install, KeyOptions, Revoke,
    ServiceKind,
};
use crate::failure::Failure;
use crate::output::{Output, print_note};
use crate::show::access::{
    self, AdoptionView, FleetView, IdentityView, InstallationView, RevocationView,
};

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Self {
        let next = error.next();
        Self::local(error, next)
    }
}

/// Runs `berth access …`.
pub fn run_access(args: &Access, output: Output) -> Result<(), Failure> {
    let (dir, now) = (args.dir.as_path(), clock::now());
    let issue = |role, service: Option<&str>, key: &KeyOptions| {
        let new = NewIdentity { role, service, valid_for: key.expires, replace: key.replace };
        issue(dir, &new, now, output)
    };
    match &args.command {
        AccessCommand::Init(args) => init(dir, args, now, output),
        AccessCommand::Service(args) => {
            let role = match args.service {
                ServiceKind::Claim => Role::Claim,
                ServiceKind::PluginRegistry => Role::PluginRegistry,
                ServiceKind::Volumewatcher => Role::Volumewatcher,
                ServiceKind::Gc => Role::Gc,
            };
            issue(role, args.name.as_deref(), &args.key)
        }
        AccessCommand::Node(args) => {
            let controllers = args.controllers.clone();
            issue(Role::Node { node: args.node.clone(), controllers }, None, &args.key)
        }
        AccessCommand::Docker(args) => {
            let namespaces = args.namespaces.iter().cloned().collect();
            issue(Role::Docker { node: args.node.clone(), namespaces }, None, &args.key)
        }
        AccessCommand::User(args) => issue(user_role(args)?, None, &args.key),
        AccessCommand::Admin(args) => {
            issue(Role::Admin { name: args.name.clone() }, None, &args.key)
        }
        AccessCommand::Inspect(args) => {
            issue(Role::Inspect { name: args.name.clone() }, None, &args.key)
        }
        AccessCommand::List => list(dir, now, output),
        AccessCommand::Show(args) => {
            let directory = Directory::open(dir)?;
            let view = view_identity(&directory, directory.find(&args.name)?, now);
            output.reply(&view, |view| access::identity(view, now));
            Ok(())
        }
        AccessCommand::Rotate(args) => {
            let mut directory = Directory::open(dir)?;
            let issued = directory.rotate(&args.name, args.expires, now)?;
            print_issued(&directory, issued, now, output);
            Ok(())
        }
        AccessCommand::Revoke(args) => revoke(dir, args, now, output),
        AccessCommand::Adopt(args) => adopt(dir, args, now, output),
        AccessCommand::Install(args) => install_files(args, output),
        AccessCommand::Certify(args) => certify(dir, args, now, output),
    }
}

fn init(dir: &Path, args: &AccessInit, now: Timestamp, output: Output) -> Result<(), Failure> {
    let servers = parse_hosts(&args.servers)?;
    if !args.installed.is_absolute() {
        return Err(Failure::usage(
            format!("--installed {} is no absolute path", args.installed.display()),
            "name the directory that each host will have, such as /etc/berth/nats",
        ));
    }
    let place = FilePlace::Installed(args.installed.clone());
    let mut directory = Directory::create(dir, &servers, &place, now)?;
    for role in SERVICES {
        directory.issue(&NewIdentity::of_role(role), now)?;
    }
    output.reply(&view_fleet(&directory, now)?, |fleet| access::fleet(fleet, now));
    let (dir, installed) = (dir.display(), args.installed.display());
    print_note(format_args!(
        "wrote {dir}; keep it secret, and make a backup: it is the only key to the fleet\n\
         next:\n  \
         copy {dir}/servers/HOST to each HOST, as DIR, and there, as root:\n    \
         install -d -o berth -g berth -m 0700 {installed}   # nats-server's user\n    \
         berth access install DIR {installed}\n    \
         nats-server -c /etc/berth/nats.conf\n  \
         copy {dir}/ca.pem and a file of {dir}/creds/ to each program\n  \
         for each node: `berth access node NAME`; for each person: `berth access user NAME`"
    ));
    Ok(())
}

fn issue(dir: &Path, new: &NewIdentity<'_>, now: Timestamp, output: Output) -> Result<(), Failure> {
    let mut directory = Directory::open(dir)?;
    let issued = directory.issue(new, now)?;
    print_issued(&directory, issued, now, output);
    Ok(())
}

fn print_issued(directory: &Directory, issued: IssuedIdentity, now: Timestamp, output: Output) {
    let name = issued.record.name.clone();
    let view = view_identity(directory, issued.record, now);
    output.reply(&view, |view| access::identity(view, now));
    print_note(format_args!(
        "wrote {}\nnext: give it to {name} with {}, and nobody else: it is a password",
        issued.creds.display(),
        directory.ca().display()
    ));
    if !view.replaced.is_empty() {
        print_note(format_args!("then, when it is in use: berth access revoke {name} --replaced"));
    }
}

/// The role of a user, or all faults of what is granted.
fn user_role(args: &AccessUser) -> Result<Role, Failure> {
    let mut grants = Grants::parse_namespaces(&args.grants).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(|fault| format!("--grant {fault}")).collect();
        Failure::usage(lines.join("\n       "), GRANT_FORM)
    })?;
    grants.plugin_read = args.plugins;
    grants.node_read = args.nodes;
    grants.operator = args.operator;
    if grants.is_empty() {
        let message = format!("the user {} is granted nothing", args.name);
        return Err(Failure::usage(message, "add --grant, --nodes, --plugins or --operator"));
    }
    Ok(Role::User { name: args.name.clone(), grants })
}

fn list(dir: &Path, now: Timestamp, output: Output) -> Result<(), Failure> {
    let directory = Directory::open(dir)?;
    output.reply(&view_fleet(&directory, now)?, |fleet| access::fleet(fleet, now));
    Ok(())
}

fn revoke(dir: &Path, args: &Revoke, now: Timestamp, output: Output) -> Result<(), Failure> {
    let mut directory = Directory::open(dir)?;
    let which_keys = if args.replaced { WhichKeys::Replaced } else { WhichKeys::All };
    let revoked_keys = match (&args.name, args.all_before) {
        (_, Some(before)) if before > now => {
            let fault = format!("--all-before {before} is in the future");
            let next = "name a time that has passed: what is issued later must not be shut out";
            return Err(Failure::usage(fault, next));
        }
        (_, Some(before)) => directory.revoke_all_before(before, now)?,
        (name, None) => directory.revoke(name.as_deref().unwrap_or_default(), which_keys, now)?,
    };
    let whose = match args.all_before {
        Some(before) => format!("what was issued before {before}"),
        None => format!("revoked keys of {}", revoked_keys.name),
    };
    let view = RevocationView {
        name: revoked_keys.name,
        revoked: revoked_keys.keys,
        files: revoked_keys.files,
    };
    output.reply(&view, access::revocation);
    print_note(format_args!(
        "Servers accept {whose} until they have loaded this.\nnext: {}",
        next_for_servers(&directory, RELOAD)
    ));
    if args.all_before.is_some() {
        print_note(format_args!(
            "then make each identity that is needed again, by its own command with --replace, and \
             hand it out"
        ));
    }
    Ok(())
}

fn adopt(dir: &Path, args: &Adopt, now: Timestamp, output: Output) -> Result<(), Failure> {
    let mut directory = Directory::open(dir)?;
    let files = args.files.iter().map(|file| ServerAccounts::read(file));
    let adopted = directory.adopt(&files.collect::<Result<Vec<_>, _>>()?, now)?;
    let view = AdoptionView {
        serial: adopted.serial,
        revoked: adopted.revoked,
        all_before: adopted.all_before,
        files: adopted.files,
    };
    output.reply(&view, access::adoption);
    print_note(format_args!("next: {}", next_for_servers(&directory, RELOAD)));
    Ok(())
}

fn install_files(args: &Install, output: Output) -> Result<(), Failure> {
    let installed = install::install(&args.from, &args.to)?;
    let view = InstallationView {
        before: installed.before,
        serial: installed.serial,
        files: installed.files,
    };
    output.reply(&view, access::installation);
    print_note(format_args!("next: {RELOAD}"));
    Ok(())
}

/// The command that makes a server read its files again.
const RELOAD: &str =
    "nats-server --signal reload        (or systemctl reload nats-server, or SIGHUP)";

/// How the files of servers come to their hosts, and what is done there.
fn next_for_servers(directory: &Directory, then: &str) -> String {
    let dir = directory.path().display();
    match &directory.record().installed {
        Some(installed) => format!(
            "copy {dir}/servers/HOST to each HOST, as DIR, and there, as root:\n  \
             berth access install DIR {installed}\n  {then}"
        ),
        None => format!("servers of this machine read {dir}/servers themselves:\n  {then}"),
    }
}

fn certify(dir: &Path, args: &Certify, now: Timestamp, output: Output) -> Result<(), Failure> {
    let (hosts, also) = (parse_hosts(&args.hosts)?, parse_hosts(&args.also)?);
    let add = parse_hosts(&args.add)?;
    let mut directory = Directory::open(dir)?;
    let ca = format!("copy {}/ca.pem to all programs, and restart or reload them", dir.display());
    let next = if args.authority {
        directory.add_authority(now)?;
        let next = next_for_servers(&directory, RELOAD);
        format!("{next}\n  {ca}\n  then: berth access certify")
    } else if args.retire {
        let retired = directory.retire_authorities(now)?.names.join(", ");
        print_note(format_args!("no longer trusted: {retired}"));
        format!("{}\n  {ca}", next_for_servers(&directory, RELOAD))
    } else if add.is_empty() {
        directory.certify(&hosts, &also, now)?;
        next_for_servers(&directory, RELOAD)
    } else {
        directory.add_servers(&add, now)?;
        let then = "start the new servers, then restart the others, one at a time";
        next_for_servers(&directory, then)
    };
    output.reply(&view_fleet(&directory, now)?, |fleet| access::fleet(fleet, now));
    print_note(format_args!("next: {next}"));
    Ok(())
}

/// The hosts, or all texts that are none.
fn parse_hosts(texts: &[String]) -> Result<Vec<Host>, Failure> {
    let (mut hosts, mut faults) = (Vec::new(), Vec::new());
    for text in texts {
        match Host::parse(text.trim()) {
            Ok(host) => hosts.push(host),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() {
        return Ok(hosts);
    }
    let next = "name hosts such as n1.example or 10.0.0.1, divided by commas";
    Err(Failure::usage(faults.join("\n       "), next))
}

fn view_identity(directory: &Directory, record: IdentityRecord, now: Timestamp) -> IdentityView {
    let creds = directory.creds_path(&record.name);
    IdentityView {
        state: record.newest_key().map_or(KeyState::Expired, |key| key.state(now)),
        key: record.newest_key().cloned(),
        replaced: record.replaced_keys(now).cloned().collect(),
        may: record.role.describe(),
        creds: creds.exists().then_some(creds),
        name: record.name,
        role: record.role,
    }
}

fn view_fleet(directory: &Directory, now: Timestamp) -> Result<FleetView, AccessError> {
    let identities = directory.identities()?;
    let record = directory.record();
    Ok(FleetView {
        directory: directory.path().to_owned(),
        installed: record.installed.clone(),
        serial: record.lineage.serial,
        all_before: record.all_before,
        unknown_revoked: record.revoked.keys().cloned().collect(),
        ca: directory.ca(),
        servers: record.servers.clone(),
        authorities: record.authorities.clone(),
        identities: identities
            .into_iter()
            .map(|record| view_identity(directory, record, now))
            .collect(),
    })
}
