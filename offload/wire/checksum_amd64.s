#include "textflag.h"

// WORDS adds the 32-bit words of a register to two sums of 64-bit lanes, those
// of the lower halves and those of the upper ones. tmp is overwritten.
#define WORDS(reg, mask, low, high, tmp) \
	VPANDQ mask, reg, tmp \
	VPSRLQ $32, reg, reg  \
	VPADDQ tmp, low, low  \
	VPADDQ reg, high, high

// func addWide(b []byte) uint64
//
// What is left behind the last 64 octets is loaded under a mask, as if zeroes
// followed.
TEXT ·addWide(SB), NOSPLIT, $0-32
	MOVQ b_base+0(FP), SI
	MOVQ b_len+8(FP), CX

	VPTERNLOGD $0xff, Z15, Z15, Z15
	VPSRLQ     $32, Z15, Z15
	VPXORQ     Z0, Z0, Z0
	VPXORQ     Z1, Z1, Z1
	VPXORQ     Z2, Z2, Z2
	VPXORQ     Z3, Z3, Z3

two:
	CMPQ      CX, $128
	JB        one
	VMOVDQU64 0(SI), Z4
	VMOVDQU64 64(SI), Z5
	WORDS(Z4, Z15, Z0, Z1, Z6)
	WORDS(Z5, Z15, Z2, Z3, Z7)
	ADDQ      $128, SI
	SUBQ      $128, CX
	JMP       two

one:
	TESTQ     CX, CX
	JZ        join
	CMPQ      CX, $64
	JB        rest
	VMOVDQU64 0(SI), Z4
	WORDS(Z4, Z15, Z0, Z1, Z6)
	ADDQ      $64, SI
	SUBQ      $64, CX
	JZ        join

rest:
	MOVQ        $-1, AX
	BZHIQ       CX, AX, AX
	KMOVQ       AX, K1
	VMOVDQU8.Z  0(SI), K1, Z4
	WORDS(Z4, Z15, Z2, Z3, Z7)

join:
	VPADDQ        Z1, Z0, Z0
	VPADDQ        Z3, Z2, Z2
	VPADDQ        Z2, Z0, Z0
	VEXTRACTI64X4 $1, Z0, Y1
	VPADDQ        Y1, Y0, Y0
	VEXTRACTI128  $1, Y0, X1
	VPADDQ        X1, X0, X0
	VPSRLDQ       $8, X0, X1
	VPADDQ        X1, X0, X0
	VMOVQ         X0, AX
	VZEROUPPER
	MOVQ          AX, ret+24(FP)
	RET
