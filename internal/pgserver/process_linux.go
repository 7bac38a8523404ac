package pgserver

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attr starts a program as the user, in a process group of its own, so that
// Ctrl-C reaches the tests and not the server under them. When the thread that
// started it ends, the kernel stops it: immediately, and without the litter in
// shared memory that SIGKILL leaves.
func (u user) attr() *syscall.SysProcAttr {
	a := apart()
	a.Pdeathsig = syscall.SIGQUIT
	if u.change {
		a.Credential = &syscall.Credential{Uid: u.uid, Gid: u.gid}
	}
	return a
}

// freeze stops the postmaster where it is, so that it starts no more children,
// and tells the children it has and the files they share in memory.
func freeze(postmaster *os.Process) (children []int, litter []string) {
	if postmaster.Signal(syscall.SIGSTOP) != nil {
		return nil, nil
	}
	for range 100 { // the signal takes a moment
		if _, state := parent(postmaster.Pid); state != "R" && state != "S" && state != "D" {
			break
		}
		<-time.After(time.Millisecond)
	}
	stats, _ := filepath.Glob("/proc/[0-9]*") // its only error is a bad pattern
	for _, dir := range stats {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if ppid, _ := parent(pid); ppid == postmaster.Pid {
			children = append(children, pid)
		}
	}
	for _, pid := range append(children, postmaster.Pid) {
		litter = append(litter, shared(pid)...)
	}
	slices.Sort(litter)
	return children, slices.Compact(litter)
}

// parent tells the parent of a process and its own state; 0 when it is gone.
func parent(pid int) (ppid int, state string) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, ""
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // a name may hold anything
	if len(fields) < 2 {
		return 0, ""
	}
	ppid, _ = strconv.Atoi(fields[1]) // 0 is nobody's
	return ppid, fields[0]
}

// shared tells the files in shared memory that a process of PostgreSQL uses.
func shared(pid int) (files []string) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/maps")
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if _, name, ok := strings.Cut(lines.Text(), "/dev/shm/PostgreSQL."); ok && !strings.Contains(name, " ") {
			files = append(files, "/dev/shm/PostgreSQL."+name)
		}
	}
	return files
}

// finish kills what is left of a killed postmaster's children.
func finish(children []int) {
	for _, pid := range children {
		// One that is gone meanwhile has another parent or none: its number can't
		// come to belong to a process with the name postgres this fast.
		if comm, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); err == nil && strings.TrimSpace(string(comm)) == "postgres" {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone already is as good
		}
	}
}

// sweep removes from shared memory what a killed server left there and no
// restart cleaned up. One that ended by itself has removed its postmaster.pid.
func (s *Server) sweep() {
	for _, file := range s.litter {
		_ = os.Remove(file) // the server may have done so
	}
	s.litter = nil
	b, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return
	}
	if lines := strings.Split(string(b), "\n"); len(lines) > 6 {
		if _, id, ok := strings.Cut(strings.TrimSpace(lines[6]), " "); ok {
			if n, err := strconv.Atoi(strings.TrimSpace(id)); err == nil {
				_, _ = unix.SysvShmCtl(n, unix.IPC_RMID, nil) // gone already is as good
			}
		}
	}
}
