//! `memcpy` and `memmove` for static x86-64 programs. musl copies with `rep movsq`, which takes 20 to 40 cycles to
//! start. This startup time is too long for the dozens of short copies that each client command needs.

use std::arch::global_asm;

/// The linker uses these symbols instead of musl's functions.
#[cfg(target_env = "musl")]
macro_rules! names {
    () => {
        ".globl memcpy, memmove\n.type memcpy, @function\n.type memmove, @function\nmemcpy: memmove:"
    };
}
/// With other C libraries, only tests call the copy function, under another name.
#[cfg(not(target_env = "musl"))]
macro_rules! names {
    () => {
        ".globl beanpole_copy"
    };
}

// rdi is the destination, rsi the source, and rdx the length. Returns the destination in rax. A copy of up to 128 bytes
// loads all bytes before it stores any, so source and destination may overlap. Loads from both ends may also overlap,
// so lengths between powers of two need no loop. A longer copy loads both ends first and stores them last. A loop
// copies the rest to aligned addresses, in the direction that reads source bytes before overwriting them.
global_asm!(
    ".pushsection .text.beanpole_copy, \"ax\", @progbits",
    ".p2align 6",
    names!(),
    "beanpole_copy:",
    "mov rax, rdi",
    "cmp rdx, 16; jb 20f",
    "movups xmm0, [rsi]; movups xmm1, [rsi + rdx - 16]",
    "cmp rdx, 32; ja 30f",
    "movups [rdi], xmm0; movups [rdi + rdx - 16], xmm1; ret",
    "20: cmp edx, 8; jb 21f",
    "mov rcx, [rsi]; mov rsi, [rsi + rdx - 8]",
    "mov [rdi], rcx; mov [rdi + rdx - 8], rsi; ret",
    "21: cmp edx, 4; jb 22f",
    "mov ecx, [rsi]; mov esi, [rsi + rdx - 4]",
    "mov [rdi], ecx; mov [rdi + rdx - 4], esi; ret",
    "22: test edx, edx; jz 23f",
    // The first, the middle and the last byte cover lengths from 1 to 3.
    "movzx ecx, byte ptr [rsi]; movzx r8d, byte ptr [rsi + rdx - 1]",
    "shr edx, 1",
    "movzx esi, byte ptr [rsi + rdx]; mov [rdi + rdx], sil",
    "adc rdx, rdx",
    "mov [rdi], cl; mov [rdi + rdx - 1], r8b",
    "23: ret",
    "30: cmp rdx, 64; ja 31f",
    "movups xmm2, [rsi + 16]; movups xmm3, [rsi + rdx - 32]",
    "movups [rdi], xmm0; movups [rdi + 16], xmm2",
    "movups [rdi + rdx - 32], xmm3; movups [rdi + rdx - 16], xmm1; ret",
    "31: movups xmm2, [rsi + 16]; movups xmm3, [rsi + 32]; movups xmm4, [rsi + 48]",
    "movups xmm5, [rsi + rdx - 64]; movups xmm6, [rsi + rdx - 48]; movups xmm7, [rsi + rdx - 32]",
    "cmp rdx, 128; ja 40f",
    "movups [rdi], xmm0; movups [rdi + 16], xmm2; movups [rdi + 32], xmm3; movups [rdi + 48], xmm4",
    "movups [rdi + rdx - 64], xmm5; movups [rdi + rdx - 48], xmm6",
    "movups [rdi + rdx - 32], xmm7; movups [rdi + rdx - 16], xmm1; ret",
    "40: mov rcx, rdi; sub rcx, rsi",
    "cmp rcx, rdx; jb 50f",
    // Copy forward. The last 64 bytes are in xmm5, xmm6, xmm7 and xmm1.
    "cmp rdx, 4096; jae 60f",
    "41: lea r9, [rdi + rdx - 64]; lea r8, [rdi + 16]; and r8, -16; neg rcx",
    "42: movups xmm2, [r8 + rcx]; movups xmm3, [r8 + rcx + 16]",
    "movups xmm4, [r8 + rcx + 32]; movups xmm8, [r8 + rcx + 48]",
    "movaps [r8], xmm2; movaps [r8 + 16], xmm3; movaps [r8 + 32], xmm4; movaps [r8 + 48], xmm8",
    "add r8, 64; cmp r8, r9; jb 42b",
    "movups [r9], xmm5; movups [r9 + 16], xmm6; movups [r9 + 32], xmm7; movups [r9 + 48], xmm1",
    "movups [rdi], xmm0; ret",
    // The destination begins within the source, so copy backward. The first 64 bytes are in xmm0, xmm2, xmm3 and xmm4.
    "50: lea r9, [rdi + 64]; lea r8, [rdi + rdx - 1]; and r8, -16; neg rcx",
    "51: movups xmm5, [r8 + rcx - 16]; movups xmm6, [r8 + rcx - 32]",
    "movups xmm7, [r8 + rcx - 48]; movups xmm8, [r8 + rcx - 64]",
    "movaps [r8 - 16], xmm5; movaps [r8 - 32], xmm6; movaps [r8 - 48], xmm7; movaps [r8 - 64], xmm8",
    "sub r8, 64; cmp r8, r9; ja 51b",
    "movups [rdi], xmm0; movups [rdi + 16], xmm2; movups [rdi + 32], xmm3; movups [rdi + 48], xmm4",
    "movups [rdi + rdx - 16], xmm1; ret",
    // Without overlap, `rep movsq` is faster for a large copy, despite its startup time.
    "60: mov r8, rsi; sub r8, rdi",
    "cmp r8, rdx; jb 41b",
    "lea rcx, [rdx - 1]; shr rcx, 3; lea r9, [rdi + rdx - 16]",
    "rep movsq; movups [r9], xmm1; ret",
    ".popsection",
);

#[cfg(test)]
#[allow(unsafe_code)]
#[path = "tests/copies.rs"]
mod tests;
