/* What Ansible calls for its interpreter in a machine: hands to warm.py what it was called with, and ends as that says. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;
static const char name[] = "\0penstock-test-python";
static char text[1 << 17];
static size_t length;

static void add(const char *word) {
    size_t bytes = strlen(word) + 1;
    if (length + bytes > sizeof text) _exit(125);
    memcpy(text + length, word, bytes);
    length += bytes;
}

int main(int argc, char **argv) {
    int files[3] = {0, 1, 2};
    char word[4096];
    mode_t mask = umask(0);
    umask(mask);
    snprintf(word, sizeof word, "%o", mask);
    add(word);
    add(getcwd(word, sizeof word) ? word : "/");
    snprintf(word, sizeof word, "%d", argc);
    add(word);
    for (char **each = argv; *each; each++) add(*each);
    for (char **each = environ; *each; each++) add(*each);

    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, name, sizeof name - 1);
    int server = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (connect(server, (void *)&address, offsetof(struct sockaddr_un, sun_path) + sizeof name - 1)) {
        perror("warm.py does not answer");
        return 125;
    }
    char control[CMSG_SPACE(sizeof files)] = {0};
    struct iovec data = {text, length};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof files)};
    memcpy(CMSG_DATA(header), files, sizeof files);
    unsigned char status;
    if (sendmsg(server, &message, 0) < 0 || read(server, &status, 1) != 1) {
        perror("warm.py");
        return 125;
    }
    return status;
}
