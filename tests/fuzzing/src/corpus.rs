//! A corpus in one file: the inputs in the order of their bytes, each behind its length in four bytes, little endian.

/// The inputs of a corpus. `None`: the file is cut.
pub fn unpack(mut file: &[u8]) -> Option<Vec<&[u8]>> {
    let mut inputs = Vec::new();
    while !file.is_empty() {
        let (len, rest) = file.split_first_chunk::<4>()?;
        let (input, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        inputs.push(input);
        file = rest;
    }
    Some(inputs)
}

/// The file of a corpus: the same for the same inputs, whatever their order.
///
/// # Panics
/// With an input of 4 GiB.
pub fn pack(mut inputs: Vec<Vec<u8>>) -> Vec<u8> {
    inputs.sort();
    inputs.dedup();
    let mut file = Vec::new();
    for input in inputs {
        let len = u32::try_from(input.len()).expect("fuzzing's inputs are short");
        file.extend_from_slice(&len.to_le_bytes());
        file.extend_from_slice(&input);
    }
    file
}
