//! The gRPC code of a status.
//!
//! **Promises** a code for every number that a plugin may send.

pub use berth_domain::GrpcCode as Code;

/// The code of a status; `UNKNOWN` for a number that is none of gRPC's.
pub fn of_status(status: &tonic::Status) -> Code {
    let number = u32::try_from(status.code() as i32).ok();
    number.and_then(Code::from_number).unwrap_or(Code::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stand_in_the_order_of_their_numbers() {
        for (number, code) in (0_i32..).zip(Code::ALL) {
            let status = tonic::Status::new(tonic::Code::from_i32(number), "");
            assert_eq!(of_status(&status), *code);
            assert_eq!(format!("{:?}", status.code()), format!("{code:?}"));
        }
        assert_eq!(Code::ALL.len(), 17);
        let unknown = tonic::Status::new(tonic::Code::from_i32(4711), "");
        assert_eq!(of_status(&unknown), Code::Unknown);
    }
}
