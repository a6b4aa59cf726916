/* Runs a command while it holds a slot of this host's agent:
 *
 *     cc -O2 -o gate gate.c
 *     ./gate SOCKET KIND INPUT_BYTES COMMAND [ARGUMENT...]
 *
 * KIND is cpu, disk or network. The exit status is the command's. Where there is no agent, or it goes away while the
 * command waits for its slot, the command runs all the same, with one warning. Needs Linux and libc.
 */
#define _GNU_SOURCE
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

typedef const uint8_t *Bytes; /* into a message; NULL: not there */

static int agent = -1;
static uint8_t out[1024], in[65536]; /* what is being written; what was received */
static size_t out_size, in_size, read_size;

/* ---- MessagePack: writing. Always the widest form, which every reader takes. */

static void byte(int value) { out[out_size++] = (uint8_t)value; }
static void array(int items) { byte(0x90 | items); }
static void map(int pairs) { byte(0x80 | pairs); }

static void text(const char *s) {
    size_t size = strnlen(s, 255);
    byte(0xd9), byte((int)size);
    memcpy(out + out_size, s, size), out_size += size;
}

static void number(uint64_t value) {
    byte(0xcf);
    for (int shift = 56; shift >= 0; shift -= 8) byte((int)(value >> shift & 255));
}

/* ---- MessagePack: reading. */

static uint64_t big_endian(Bytes p, int bytes) {
    uint64_t value = 0;
    while (bytes--) value = value << 8 | *p++;
    return value;
}

static Bytes skip(Bytes p, Bytes end) { /* behind the value at p; NULL: it is not complete */
    /* By type, from 0xc0: how many bytes say a length, and how many follow whatever that says. */
    static const uint8_t lengths[32] = {[4] = 1, 2, 4, 1, 2, 4, [25] = 1, 2, 4, 2, 4, 2, 4};
    static const uint8_t fixed[32] = {[7] = 1, 1, 1, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17};
    for (uint64_t values = 1; values > 0; values--) {
        if (p >= end) return NULL;
        int type = *p++;
        if (type < 0x80 || type >= 0xe0) continue; /* a small number */
        if (type < 0xa0) { values += (uint64_t)(type & 15) << (type < 0x90); continue; } /* small map, array */
        uint64_t follow = (uint64_t)(type & 31);
        if (type >= 0xc0) {
            int width = lengths[type - 0xc0];
            if (end - p < width) return NULL;
            uint64_t length = big_endian(p, width);
            p += width, follow = fixed[type - 0xc0];
            if (type >= 0xdc) values += length << (type >= 0xde);
            else follow += length;
        }
        if ((uint64_t)(end - p) < follow) return NULL;
        p += follow;
    }
    return p;
}

static int is_text(Bytes p, const char *wanted) {
    size_t size = *p == 0xd9 ? p[1] : *p & 31;
    return (*p == 0xd9 || (*p & 0xe0) == 0xa0) && size == strlen(wanted) && !memcmp(p + 1 + (*p == 0xd9), wanted, size);
}

/* ---- The conversation. */

static int send_out(void) {
    ssize_t sent = send(agent, out, out_size, MSG_NOSIGNAL);
    int whole = sent == (ssize_t)out_size;
    out_size = 0;
    return whole;
}

/* The next message; NULL: the agent is gone, speaks gibberish or did not answer in time (-1: there is time). */
static Bytes receive(int timeout_ms) {
    memmove(in, in + read_size, in_size -= read_size);
    for (read_size = 0;;) {
        Bytes end = skip(in, in + in_size);
        if (end) { read_size = (size_t)(end - in); return in; }
        struct pollfd readable = {agent, POLLIN, 0};
        if (poll(&readable, 1, timeout_ms) <= 0) return NULL;
        ssize_t got = recv(agent, in + in_size, sizeof in - in_size, 0);
        if (got <= 0) return NULL;
        in_size += (size_t)got;
    }
}

static Bytes field(Bytes map, const char *name) { /* a value of a small map */
    Bytes end = in + read_size, key = map + 1;
    for (int pairs = *map & 15; pairs-- > 0; key = skip(skip(key, end), end))
        if (is_text(key, name)) return skip(key, end);
    return NULL;
}

/* Return whether only root or this user can have put the socket there, and listens at it. */
static int trusted(const struct sockaddr_un *address) {
    char path[sizeof address->sun_path];
    struct stat directory;
    struct ucred server;
    socklen_t size = sizeof server;
    memcpy(path, address->sun_path, sizeof path);
    if (stat(dirname(path), &directory) || getsockopt(agent, SOL_SOCKET, SO_PEERCRED, &server, &size)) return 0;
    uid_t own = geteuid();
    return (!server.uid || server.uid == own) && (!directory.st_uid || directory.st_uid == own) &&
           !(directory.st_mode & 022);
}

static int granted(const char *path, const char *kind, uint64_t input_bytes, char *job) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    agent = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(agent, (struct sockaddr *)&address, sizeof address) || !trusted(&address)) return 0;

    array(3), byte(2), text("hello"), array(1), map(2);
    text("protocol"), byte(1), text("client"), text("gate.c");
    array(4), byte(0), byte(1), text("register_job"), array(1), map(1), text("name"), text("gate.c");
    Bytes answer = send_out() ? receive(1000) : NULL; /* [1, 1, nil, {"job": …, "admitted": …}] */
    if (!answer || answer[1] != 1 || answer[3] != 0xc0) return 0;
    Bytes id = field(answer + 4, "job");
    if (!id) return 0;
    size_t head = *id == 0xd9 ? 2 : 1, size = (size_t)(skip(id, in + read_size) - id) - head;
    memcpy(job, id + head, size), job[size] = 0;

    array(3), byte(2), text("submit"), array(1), map(2), text("job"), text(job), text("monotasks"), array(1);
    map(3), text("id"), byte(1), text("kind"), text(kind), text("input_bytes"), number(input_bytes);
    if (!send_out()) return 0;
    for (;;) {
        Bytes message = receive(-1);
        if (!message || message[1] != 2 || is_text(message + 2, "rejected") || is_text(message + 2, "error")) return 0;
        if (is_text(message + 2, "grant")) return 1; /* [2, "grant", [{"job": …, "ids": [1]}]]: ours is the only one */
    }
}

static void complete(const char *job, int failed) {
    array(3), byte(2), text("complete"), array(1), map(2), text("job"), text(job), text("monotasks"), array(1);
    map(2), text("id"), byte(1), text("failed"), byte(failed ? 0xc3 : 0xc2);
    send_out(); /* an agent that is gone has given the slot back */
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: %s SOCKET KIND INPUT_BYTES COMMAND [ARGUMENT...]\n", argv[0]);
        return 2;
    }
    char job[256];
    int gated = granted(argv[1], argv[2], strtoull(argv[3], NULL, 10), job);
    if (!gated) fprintf(stderr, "%s: going on without a grant\n", argv[0]);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* when we are killed the slot is given back: so the work must end, too */
        if (getppid() == parent) execvp(argv[4], argv + 4);
        perror(argv[4]);
        _exit(127);
    }
    int status = 127 << 8;
    if (child < 0 || waitpid(child, &status, 0) < 0) perror(argv[0]);
    if (gated) complete(job, status != 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
