// Calls of the C library that name files: each writes, and reads back what it wrote.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); exit(1); } } while (0)

static const char *contents(const char *path) {
    static char text[64];
    memset(text, 0, sizeof text);
    FILE *file = fopen(path, "r");
    if (!file) return "";
    fread(text, 1, sizeof text - 1, file);
    fclose(file);
    return text;
}

int main(void) {
    FILE *file = fopen("stream.txt", "w");
    CHECK(file && fputs("stream", file) >= 0 && fclose(file) == 0);
    CHECK(strcmp(contents("stream.txt"), "stream") == 0);
    file = fopen64("old.txt", "a");
    CHECK(file && fputs("+", file) >= 0);
    CHECK((file = freopen("again.txt", "w", file)) && fputs("again", file) >= 0 && fclose(file) == 0);
    CHECK(strcmp(contents("old.txt"), "old+") == 0 && strcmp(contents("again.txt"), "again") == 0);
    CHECK(fopen("old.txt", "wx") == NULL);

    char name[] = "unique-XXXXXX";
    int descriptor = mkstemp(name);
    CHECK(descriptor >= 0 && strcmp(name, "unique-XXXXXX") != 0 && access(name, F_OK) == 0);
    CHECK(write(descriptor, "u", 1) == 1 && close(descriptor) == 0 && strcmp(contents(name), "u") == 0);
    CHECK(remove(name) == 0 && access(name, F_OK) != 0);

    char folder[] = "folder-XXXXXX";
    CHECK(mkdtemp(folder) == folder && rmdir(folder) == 0);

    descriptor = open(".", O_TMPFILE | O_RDWR, 0600);
    if (descriptor >= 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
        CHECK(write(descriptor, "named later", 11) == 11);
        CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "named.txt", AT_SYMLINK_FOLLOW) == 0);
        CHECK(strcmp(contents("named.txt"), "named later") == 0);
        close(descriptor);
    }

    char path[PATH_MAX];
    CHECK(mkdir("made", 0755) == 0 && realpath("made", path) && strstr(path, "/project/made"));
    CHECK(realpath("no/such", path) == NULL);
    CHECK(creat("made/new", 0600) >= 0 && rename("made/new", "data/a.bin") == 0);
    CHECK(strcmp(contents("data/a.bin"), "") == 0 && strcmp(contents("link/a.bin"), "") == 0);
    CHECK(renameat2(AT_FDCWD, "old.txt", AT_FDCWD, "data/b.bin", RENAME_NOREPLACE) != 0);

    int seen = 0;
    DIR *stream = opendir("data");
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        if (entry->d_name[0] != '.') { seen++; CHECK(entry->d_type == DT_REG); }
    CHECK(stream && closedir(stream) == 0 && seen == 2);
    struct stat found;
    CHECK(unlink("link") == 0 && lstat("link", &found) != 0 && stat("data", &found) == 0);
    return 0;
}
