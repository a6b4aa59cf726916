# Runs once, in the image that is being built.
export DEBIAN_FRONTEND=noninteractive

# Nothing runs that the tests do not need: every service costs a second of emulated time.
systemctl --quiet mask \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer man-db.timer systemd-tmpfiles-clean.timer \
    getty.target getty@tty1.service serial-getty@ttyS0.service \
    systemd-networkd.service systemd-networkd.socket systemd-resolved.service systemd-timesyncd.service \
    systemd-random-seed.service systemd-update-utmp.service systemd-update-utmp-runlevel.service \
    systemd-journal-flush.service systemd-pstore.service systemd-rfkill.service \
    systemd-binfmt.service systemd-pcrphase.service systemd-firstboot.service \
    networking.service keyboard-setup.service console-setup.service \
    modprobe@drm.service modprobe@efi_pstore.service modprobe@fuse.service \
    modprobe@configfs.service modprobe@dm_mod.service modprobe@loop.service kmod-static-nodes.service \
    systemd-logind.service dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-config.mount sys-kernel-tracing.mount \
    sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount
systemctl --quiet enable vm-network.service vm-ready.service ssh.service
systemctl --quiet disable systemd-oomd.service systemd-oomd.socket # a peer for one test; it starts it
systemctl --quiet set-default multi-user.target

echo penstock-vm > /etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 penstock-vm\n::1 localhost\n' > /etc/hosts
rm -f /etc/resolv.conf
printf '%s\n' 'LABEL=root / ext4 defaults,noatime 0 0' 'LABEL=scratch /scratch ext4 defaults,noatime,nofail 0 0' \
    > /etc/fstab
mkdir /scratch
dbus-uuidgen > /etc/machine-id

# Somebody without privileges, for whatever must work for such a user.
useradd --create-home --shell /bin/bash tester
chmod 700 /root /root/.ssh
install -d -m 700 -o tester -g tester /home/tester/.ssh
install -m 600 -o tester -g tester /root/.ssh/authorized_keys /home/tester/.ssh/authorized_keys

python3 -m venv /opt/venv
/opt/venv/bin/pip install --quiet --disable-pip-version-check \
    --no-index --find-links /opt/wheelhouse --requirement /opt/wheelhouse/requirements.txt

# Only the drivers of this machine, so that the kernel finds its disk at once.
update-initramfs -u -k all
cp -L /vmlinuz /boot/vm-kernel
cp -L /initrd.img /boot/vm-initrd
