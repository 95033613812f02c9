//! `.creds` files: a user's token and seed, each on a line of its own between lines that name it.
//!
//! **Owns** where the two are. **Never** says what is in them.

/// The name of the token's part.
pub const TOKEN: &str = "NATS USER JWT";
/// The name of the seed's part.
pub const SEED: &str = "USER NKEY SEED";

/// The line of this part. None if the part is empty: then the next line is its end line, which
/// begins with dashes. No token and no seed does.
pub fn find_part<'a>(text: &'a str, part: &str) -> Option<&'a str> {
    let begin = format!("BEGIN {part}");
    let mut lines = text.lines().map(str::trim).skip_while(|line| !line.contains(&begin)).skip(1);
    lines.find(|line| !line.is_empty()).filter(|line| !line.starts_with("---"))
}
