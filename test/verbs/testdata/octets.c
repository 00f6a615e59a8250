// Ranks exchange messages of many sizes in a ring and with collective operations, and
// compare every octet.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

// octet is the octet at place i of the message of a rank in a round.
static unsigned char octet(int from, int round, size_t i)
{
	return (unsigned char)(from * 31 + round * 7 + i * 13 + (i >> 8));
}

static void fill(unsigned char *b, size_t n, int round)
{
	for (size_t i = 0; i < n; i++)
		b[i] = octet(rank, round, i);
}

static long wrong(const unsigned char *b, size_t n, int from, int round)
{
	long bad = 0;

	for (size_t i = 0; i < n; i++)
		bad += b[i] != octet(from, round, i);
	return bad;
}

// ring sends n octets to the next rank and gets as many from the last. The memory is new in
// each round, so that it is registered again.
static long ring(size_t n, int rounds)
{
	int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
	long bad = 0;

	for (int round = 0; round < rounds; round++) {
		unsigned char *out = malloc(n), *in = calloc(1, n);

		fill(out, n, round);
		MPI_Sendrecv(out, (int)n, MPI_BYTE, next, round, in, (int)n, MPI_BYTE, last, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		bad += wrong(in, n, last, round);
		free(out);
		free(in);
	}
	return bad;
}

// moved is ring with memory that grows and shrinks by realloc. The memory of an earlier round
// may still be registered when it moves or gets other pages.
static long moved(int rounds)
{
	static const size_t sizes[] = {300000, 20000, 2000000, 65536, 700001, 4096};
	int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
	unsigned char *out = NULL, *in = NULL;
	long bad = 0;

	for (int round = 0; round < rounds; round++) {
		size_t n = sizes[round % (sizeof sizes / sizeof *sizes)];

		out = realloc(out, n);
		in = realloc(in, n);
		memset(in, 0, n);
		fill(out, n, round);
		MPI_Sendrecv(out, (int)n, MPI_BYTE, next, round, in, (int)n, MPI_BYTE, last, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		bad += wrong(in, n, last, round);
	}
	free(out);
	free(in);
	return bad;
}

// flood sends many messages before any is received.
static long flood(void)
{
	enum { MESSAGES = 500, LEN = 3000 };
	static unsigned char out[MESSAGES][LEN], in[MESSAGES][LEN];
	static MPI_Request requests[2 * MESSAGES];
	int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
	long bad = 0;

	for (int i = 0; i < MESSAGES; i++) {
		fill(out[i], LEN, i);
		MPI_Isend(out[i], LEN, MPI_BYTE, next, i, MPI_COMM_WORLD, &requests[i]);
	}
	for (int i = 0; i < MESSAGES; i++)
		MPI_Irecv(in[i], LEN, MPI_BYTE, last, i, MPI_COMM_WORLD, &requests[MESSAGES + i]);
	MPI_Waitall(2 * MESSAGES, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < MESSAGES; i++)
		bad += wrong(in[i], LEN, last, i);
	return bad;
}

int main(int argc, char **argv)
{
	long bad = 0, all = 0;
	double mine, sum = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (size_t n = 1; n <= 4u << 20; n *= 4)
		bad += ring(n, 5);
	bad += ring(1234567, 3);
	if (argc > 1) // MPI_Init leaves the program's own arguments
		bad += moved(18);
	bad += flood();
	mine = rank + 1;
	MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	bad += sum != ranks * (ranks + 1) / 2.0;
	MPI_Allreduce(&bad, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (!rank)
		printf("%d ranks, %ld octets differ\n", ranks, all);
	MPI_Finalize();
	return all != 0;
}
